"""What goes into a model: signals, images, texts. One file each."""
