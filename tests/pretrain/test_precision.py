"""bf16 on the CPU: tried in a child process, and close to fp32 with attention kept in float32."""

import pytest
import torch

from pjepa.model.attention import attention_plan, layout_of_segments
from pjepa.ui import device
from pjepa.ui.console import InputError
from tests.pretrain.conftest import changed, packed
from tests.pretrain.test_loop import new_trainer


@pytest.fixture(autouse=True)
def not_yet_tried():
    device.try_bf16.cache_clear()
    yield
    device.try_bf16.cache_clear()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("dies", "message"),
    [
        ("True", r"pjepa.precision: this CPU cannot .*code -4\); use fp32$"),
        (
            "not os.environ.get('ONEDNN_MAX_CPU_ISA')",
            r"use fp32, or set ONEDNN_MAX_CPU_ISA=AVX512_CORE_BF16$",
        ),
    ],
)
def test_a_cpu_that_dies_of_bf16_is_refused_in_one_line(monkeypatch, dies, message):
    trial = f"import os, signal\nif {dies}: os.kill(os.getpid(), signal.SIGILL)"
    monkeypatch.setattr(device, "BF16_TRIAL", trial)
    monkeypatch.delenv("ONEDNN_MAX_CPU_ISA", raising=False)
    with pytest.raises(InputError, match=message):
        device.try_bf16("pjepa.precision")


@pytest.mark.slow
def test_a_cpu_without_the_instructions_is_told_so(monkeypatch, capsys):
    monkeypatch.setattr(device, "has_bf16", lambda: False)
    device.try_bf16("pjepa.precision")
    assert "has no bf16 instructions" in "".join(capsys.readouterr())


def test_a_gpu_without_bf16_is_refused_in_one_line(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation: False)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "Quadro")
    with pytest.raises(InputError, match=r"^patches.precision: Quadro cannot .* set it to fp32$"):
        device.check_bf16(torch.device("cuda"), "patches.precision")


def test_tf32_is_for_cuda_and_ends_with_the_network():
    for kind, expected in (("cuda", "high"), ("cpu", "highest")):
        with device.tf32(torch.device(kind)):
            assert torch.get_float32_matmul_precision() == expected
        assert torch.get_float32_matmul_precision() == "highest"


def test_attention_of_bf16_is_computed_in_float32():
    layout = layout_of_segments([[3, 9], [4]])
    plan = attention_plan(layout, layout.segment)
    qkv = torch.randn(3, 16, 2, 8).bfloat16()
    expected = plan.attend(*qkv.float())
    assert torch.equal(plan.attend(*qkv), expected.bfloat16())


def test_a_step_in_bf16_is_near_the_one_in_fp32(takes, config):
    losses, gradients = [], []
    for precision in ("fp32", "bf16"):
        trainer = new_trainer(takes, changed(config, width=32, precision=precision))
        trainer.step([packed(takes, config)])
        losses.append(trainer.progress.means()[0])
        gradients.append(torch.cat([p.grad.flatten() for p in trainer.parameters]))
    assert losses[1] == pytest.approx(losses[0], rel=0.01)
    assert float(torch.cosine_similarity(*gradients, dim=0)) > 0.99
