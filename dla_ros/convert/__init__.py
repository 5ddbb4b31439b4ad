"""From an ONNX to a DLA loadable: graph, rules, check, surgery, precision, trtexec."""
