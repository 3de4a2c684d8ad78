"""A method from outside fedpca: per coordinate the mean without the largest and smallest values (Yin et al. 2018)."""

from dataclasses import dataclass, replace

from torch import Tensor

from fedpca import Method, PerCoordinate, Plan, Settings, base, method, one_stage


class TrimmedMeanSettings(Settings):
    """What `[method."trimmed_mean:trimmed_mean"]` takes."""

    share: float = 0.1  # of the clients, left out at either end


@dataclass(frozen=True)
class Trimmed:
    """The mean of each column without its largest and smallest values."""

    share: float

    def __call__(self, values: Tensor) -> Tensor:
        """From (clients, n) to (n,)."""
        cut = int(self.share * len(values))
        return values.sort(dim=0).values[cut : len(values) - cut].double().mean(dim=0)


@method(settings=TrimmedMeanSettings, family="robust")
def trimmed_mean(plan: Plan, settings: TrimmedMeanSettings) -> Method:
    """Per coordinate the mean without the largest and smallest values (Yin et al. 2018)."""
    return one_stage(replace(base(plan), aggregate=PerCoordinate(Trimmed(settings.share))))
