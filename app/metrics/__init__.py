"""What Prometheus is told. The only room that knows its library; nothing below knows that anybody measures: it is
told by the events and the moves, as the log is, and reads the rest from memory when it is asked."""
