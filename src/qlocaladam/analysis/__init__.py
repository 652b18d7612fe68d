"""What is measured on results, partitions, codecs and optimizer states. Nothing here trains a federated model."""
