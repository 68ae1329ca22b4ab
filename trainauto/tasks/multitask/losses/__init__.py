"""What tasks weigh: losses of samples, gradient norms, samples and rates of steps."""
