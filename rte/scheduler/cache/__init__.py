"""The cluster as it is known: fed by watches and by our own decisions (pure)."""
