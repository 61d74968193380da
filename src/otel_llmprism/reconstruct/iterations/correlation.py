# A series -> how alike it is to itself later on. Pure.
import numpy as np

from otel_llmprism.model.steps import F64


def correlate(values: F64, most: int) -> F64:
    """Return the autocorrelation at lags 1 to `most`."""
    centred = values - values.mean()
    size = 1 << (2 * len(values) - 1).bit_length()
    spectrum = np.fft.rfft(centred, size)
    raw = np.fft.irfft(spectrum * np.conj(spectrum), size)[: most + 1]
    overlap = len(values) - np.arange(most + 1)
    scale = max(float(raw[0]) / len(values), 1e-12)
    correlation: F64 = raw[1:] / overlap[1:] / scale
    return correlation
