"""Read the weights of ONNX graphs."""
