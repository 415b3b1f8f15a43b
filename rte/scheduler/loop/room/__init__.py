"""Room for pods that fit nowhere: evictions, nominations, moves."""
