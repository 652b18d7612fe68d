"""What is measured on results, partitions, codecs and optimizer states. Some train a client or a model for that."""
