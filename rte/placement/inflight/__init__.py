"""What may have happened on a node meanwhile: endings, pods in flight."""
