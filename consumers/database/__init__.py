"""SQL databases through SQLAlchemy Core: positions beside data, and what makes a repeated write harmless."""
