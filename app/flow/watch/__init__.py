"""What people and programs that watch the service are told: figures kept in memory as jobs move, why a job waits, and
the stream of moves. None of it decides anything, and none of it may hold up those who do."""
