"""The slow comparison of memory with the database, which mends what plain SQL has changed."""
