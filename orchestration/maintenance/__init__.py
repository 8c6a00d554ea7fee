"""Keeping tables healthy beside whoever writes and reads them: few files, a short log to load, and no files that nobody needs."""
