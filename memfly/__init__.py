"""MemFly (arXiv:2602.07885): memory as an information bottleneck. Gate what enters, evolve topics, retrieve by three pathways."""
