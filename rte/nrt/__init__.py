"""NodeResourceTopology objects: encode, decode, annotations, pod fingerprint (pure)."""
