"""From an ONNX to a DLA loadable: graph, rules, check."""
