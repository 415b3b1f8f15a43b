"""What pods claim beside a node's room: volumes, and devices of DRA."""
