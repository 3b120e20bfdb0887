import torch

torch.set_num_threads(1)  # the toys are tiny, and the tests run in parallel
