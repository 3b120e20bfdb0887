"""Methods with their own process, objective and sampler: autoregressive, any-order, Bayesian flow, block, DDPM, Gaussian,
insertion."""
