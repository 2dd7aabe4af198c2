"""The plain LTContext of the benchmark computes what ours computes."""

import torch

from benchmarks.probes_ltcontext import PlainLTContext, plain_loss
from pjepa.probes.ltcontext.config import LTContextConfig
from pjepa.probes.ltcontext.model import LTContext, official_weights


def test_the_reference_is_the_same_model() -> None:
    config = LTContextConfig(
        stages=3, layers=3, width=8, reduction=2, window=4, stride=5, heads=2, dilation=4
    )
    torch.manual_seed(0)
    plain = PlainLTContext(config, 6, 4).double().eval()
    ours = LTContext(config, 6, 4).double().eval()
    ours.load_state_dict(official_weights(plain.state_dict()))
    features, labels = torch.randn(2, 23, 6).double(), torch.randint(4, (2, 23))
    valid = torch.arange(23) < torch.tensor([[23], [13]])
    labels[~valid] = -100
    expected = plain(features.transpose(1, 2), valid[:, None])
    found = ours(features, valid=valid)
    torch.testing.assert_close(torch.stack(found).transpose(2, 3), expected)
    loss, reference = ours.loss(found, labels), plain_loss(expected, labels, config)
    torch.testing.assert_close(loss, reference)
    loss.backward()
    reference.backward()
    grads = {
        name: parameter.grad if parameter.grad is not None else torch.zeros_like(parameter)
        for name, parameter in plain.named_parameters()
    }
    for name, expected_grad in official_weights(grads).items():
        torch.testing.assert_close(ours.get_parameter(name).grad, expected_grad)
