"""bf16 on the CPU: tried in a child process, and close to fp32 with attention kept in float32."""

import pytest
import torch

from pjepa.model.attention import attention_plan, layout_of_segments
from pjepa.model.config import EncoderConfig
from pjepa.model.encoder import ProcedureEncoder
from pjepa.model.masking import mask_of
from pjepa.model.objective import Batch, Jepa
from pjepa.model.predictor import Predictor
from pjepa.ui import device
from pjepa.ui.console import InputError


@pytest.fixture(autouse=True)
def not_yet_tried():
    device.try_bf16.cache_clear()
    yield
    device.try_bf16.cache_clear()


@pytest.mark.slow
def test_a_cpu_that_dies_of_bf16_is_refused_in_one_line(monkeypatch):
    died = "import os, signal; os.kill(os.getpid(), signal.SIGILL)"
    monkeypatch.setattr(device, "BF16_TRIAL", died)
    with pytest.raises(
        InputError, match=r"pjepa.precision: this CPU cannot .*code -4\); use fp32$"
    ):
        device.try_bf16("pjepa.precision")


@pytest.mark.slow
def test_a_cpu_that_dies_of_amx_alone_is_told_how_to_do_without(monkeypatch):
    died = "import os, signal; os.environ.get('ONEDNN_MAX_CPU_ISA') or os.kill(os.getpid(), 4)"
    monkeypatch.setattr(device, "BF16_TRIAL", died)
    monkeypatch.delenv("ONEDNN_MAX_CPU_ISA")
    with pytest.raises(InputError, match=r"use fp32, or set ONEDNN_MAX_CPU_ISA=AVX512_CORE_BF16$"):
        device.try_bf16("pjepa.precision")


@pytest.mark.slow
def test_a_cpu_without_the_instructions_is_told_so(monkeypatch, capsys):
    monkeypatch.setattr(device, "has_bf16", lambda: False)
    device.try_bf16("pjepa.precision")
    shown = capsys.readouterr()
    assert "has no bf16 instructions" in shown.out + shown.err


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


def test_a_step_in_bf16_is_near_the_one_in_fp32():
    torch.manual_seed(0)
    config = EncoderConfig(d_in=12, width=32, depth=2, heads=2, attention="clip_causal")
    model = Jepa(ProcedureEncoder(config), Predictor(config, 2, 2))
    layout = layout_of_segments([[9, 20, 6], [15, 5]])
    mask = mask_of(torch.rand(55) < 0.7, layout.take_lengths)
    batch = Batch(torch.randn(55, 12), layout, mask)
    losses, gradients = [], []
    for enabled in (False, True):
        model.zero_grad()
        with torch.autocast("cpu", torch.bfloat16, enabled=enabled):
            loss = model.loss(batch)
        loss.backward()
        losses.append(float(loss.detach()))
        gradients.append(torch.cat([p.grad.flatten() for p in model.trained_parameters()]))
    assert losses[1] == pytest.approx(losses[0], rel=0.01)
    assert float(torch.cosine_similarity(*gradients, dim=0)) > 0.99
