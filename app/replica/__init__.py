"""One of several servers on one Postgres: who of them dispatches, and how what only that one can do is handed on to it.
It knows nothing of jobs; what a server that dispatches consists of is built by `app.main`."""
