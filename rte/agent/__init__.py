"""The node agent: observe, publish, stay alive."""
