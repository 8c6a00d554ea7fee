"""A consumer's definition proposed from records of its topic: read some, look at them, and write the YAML with what was seen."""
