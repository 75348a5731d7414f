"""What is seen: observations, gradients read off iterates, and streams of them."""
