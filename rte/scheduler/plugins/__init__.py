"""The scheduling rules, one file each, named as kube-scheduler names them (pure)."""
