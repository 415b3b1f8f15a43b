"""A real Kubernetes cluster on one machine, on simulated NUMA hardware.

Real etcd, kube-apiserver, kube-controller-manager, kube-scheduler and any number of real kubelets,
each in a mount namespace of its own that shows it invented hardware. ``python -m tests.cluster``
is the command for people, ``tests/cluster/conftest.py`` hands out the pytest fixtures.
"""
