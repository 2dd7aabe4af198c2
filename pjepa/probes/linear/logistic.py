"""Multinomial logistic regression to convergence, for a falling series of L2 strengths.

    F(W, b) = mean_i CE(softmax(W x_i + b), y_i) + l2 / 2 ||W||^2          (bias not penalised)

sklearn's LogisticRegression has the same optimum at C = 1 / (l2 N). One evaluation is two matrix
products, on the device the tokens lie on; scipy drives on the host and sees [D + 1, C] numbers.
L-BFGS runs in the coordinates V = L^T W with L L^T = h Cov(x) + l2 I, an estimate of the Hessian
(h: mean p (1 - p) of the present model), which takes tens of iterations where the plain coordinates
of correlated features take hundreds.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

if TYPE_CHECKING:
    from scipy.optimize import OptimizeResult

SINGLE = 1e-5  # finest gradient that single precision can tell from rounding
FLATTEST = 1e-8  # least curvature assumed, so that a perfect or one-class fit stays defined


@dataclass(frozen=True)
class LogisticModel:
    """One optimum, and what it took to reach it."""

    weight: Tensor  # [C, D] float64, on the device of the tokens
    bias: Tensor  # [C] float64
    l2: float
    loss: float
    iterations: int
    gradient: float  # largest |dF/dW|, |dF/db|
    converged: bool


def logistic_path(
    features: Tensor, labels: Tensor, l2: tuple[float, ...], tolerance: float, max_iterations: int
) -> Iterator[LogisticModel]:
    """Yield the optimum for each strength, strong to weak, each started from the one before.

    `features [N, D]` are centred; `labels [N]` run from 0 to C - 1 and every class occurs.
    A fit has converged when no entry of the gradient exceeds `tolerance` (sklearn's rule); below
    `SINGLE` that takes double precision, at twice the time.
    """
    if tolerance < SINGLE:
        features = features.double()
    classes = int(labels.max()) + 1
    covariance = (features.T @ features).double() / len(features)
    share = torch.bincount(labels, minlength=classes).double() / len(labels)
    weight = covariance.new_zeros(classes, features.shape[1])
    bias = share.log() - share.log().mean()
    curvature = max(float((share * (1 - share)).mean()), FLATTEST)
    for strength in sorted(l2, reverse=True):
        fit = _Fit(features, labels, covariance, strength, curvature, tolerance)
        model = fit.run(weight, bias, max_iterations)
        weight, bias, curvature = model.weight, model.bias, fit.curvature
        yield model


class _Fit:
    """The objective in preconditioned coordinates, as scipy wants it: flat float64 vectors."""

    def __init__(
        self,
        features: Tensor,
        labels: Tensor,
        covariance: Tensor,
        l2: float,
        curvature: float,
        tolerance: float,
    ) -> None:
        self.features, self.labels, self.l2, self.tolerance = features, labels, l2, tolerance
        hessian = curvature * covariance
        hessian.diagonal().add_(l2)
        self.factor = torch.linalg.cholesky(hessian)  # L, lower
        self.bias_scale = curvature**0.5
        self.rows = torch.arange(len(labels), device=labels.device)
        self.curvature = curvature
        self.gradient = float("inf")

    def run(self, weight: Tensor, bias: Tensor, max_iterations: int) -> LogisticModel:
        """Return the optimum reached from (weight, bias)."""
        from scipy.optimize import minimize  # slow to import, and who only predicts never fits

        start = torch.cat([self.factor.T @ weight.T, (self.bias_scale * bias)[None]])  # [D + 1, C]
        optimum: OptimizeResult = minimize(
            self.value_and_gradient,
            start.cpu().numpy().ravel(),
            jac=True,
            method="L-BFGS-B",
            callback=self._stop_when_flat,
            options={
                "maxiter": max_iterations,
                "maxfun": 2 * max_iterations,
                "maxcor": 20,
                "ftol": 0.0,
                "gtol": 0.0,
            },
        )
        weight, bias = self._natural(optimum.x)
        loss, _ = self.value_and_gradient(optimum.x)
        p = self._log_probabilities(weight, bias).exp_()
        self.curvature = max(float((p - p.square()).mean()), FLATTEST)
        flat = self.gradient <= self.tolerance
        return LogisticModel(weight, bias, self.l2, loss, int(optimum.nit), self.gradient, flat)

    def value_and_gradient(self, vector: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        """Return F and its gradient at V; keeps the natural gradient's size for the stop rule."""
        weight, bias = self._natural(vector)
        logp = self._log_probabilities(weight, bias)
        loss = -logp[self.labels, self.rows].double().mean() + self.l2 / 2 * weight.square().sum()
        residual = logp.exp_()
        residual[self.labels, self.rows] -= 1
        residual /= len(self.labels)
        slope = ((residual @ self.features).double() + self.l2 * weight).T  # [D, C]
        tilt = residual.sum(1).double()  # [C]
        self.gradient = max(float(slope.abs().max()), float(tilt.abs().max()))
        scaled = torch.linalg.solve_triangular(self.factor, slope, upper=False)
        gradient = torch.cat([scaled, (tilt / self.bias_scale)[None]])
        return float(loss), gradient.cpu().numpy().ravel()

    def _log_probabilities(self, weight: Tensor, bias: Tensor) -> Tensor:
        """Return log softmax(W x_i + b) [C, N] in the precision of the tokens.

        Classes are rows: with few of them, softmax over columns is many times as fast.
        """
        narrow = self.features.dtype
        logits = torch.addmm(bias[:, None].to(narrow), weight.to(narrow), self.features.T)
        return torch.log_softmax(logits, 0)

    def _natural(self, vector: NDArray[np.float64]) -> tuple[Tensor, Tensor]:
        """Return W [C, D] and b [C] at V."""
        table = torch.from_numpy(np.array(vector)).view(len(self.factor) + 1, -1)
        table = table.to(self.factor.device)
        weight = torch.linalg.solve_triangular(self.factor.T, table[:-1], upper=True)
        return weight.T, table[-1] / self.bias_scale

    def _stop_when_flat(self, intermediate_result: OptimizeResult) -> None:
        if self.gradient <= self.tolerance:
            raise StopIteration
