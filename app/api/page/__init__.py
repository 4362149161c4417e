"""The operator's page: HTML from templates, forms with a confirmation, and a bell that rings when something has moved.
It shows what `flow` knows and does what `flow` does; nothing here is part of the HTTP contract but the path `/`."""
