"""What others may ask: the extender of kube-scheduler, and why a pod goes where it goes."""
