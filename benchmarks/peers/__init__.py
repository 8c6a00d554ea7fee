"""One contestant a file, each run in an environment of its own: nothing here may import what that environment lacks."""
