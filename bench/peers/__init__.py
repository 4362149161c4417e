"""Peers, driven through their own public interfaces in an environment of their own. The programs here import the peer
and nothing of Fairlane but the payload; `environment` makes the environment, `process` speaks with a program in it."""
