"""What comes out of a model: a signal, a number, a class. One file each."""
