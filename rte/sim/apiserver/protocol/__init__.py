"""HTTP: requests, answers, discovery; and faults on purpose."""
