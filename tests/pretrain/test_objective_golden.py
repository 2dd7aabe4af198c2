"""Student, predictor, teacher, loss, gradients, one step and the EMA against the authors' code."""

import json
from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file

from pjepa.model.attention import layout_of_segments
from pjepa.model.config import EncoderConfig
from pjepa.model.encoder import ProcedureEncoder
from pjepa.model.masking import mask_of
from pjepa.model.objective import Batch, Jepa
from pjepa.model.predictor import Predictor

GOLDEN = Path(__file__).parents[1] / "golden" / "pjepa"
CASES = ("clip_causal_2d", "bidirectional_2d", "causal_2d", "block_causal_1d")
ATTENTION = {"causal": "token_causal"}
BUFFERS = ("mean", "std", "style_read", "style_write", "style_strength", "found_threshold")
POSITIONS = {"2d_clip_frame": "2d", "1d_flat": "1d"}


class Case:
    """One golden file as our model and our packed batch."""

    def __init__(self, name):
        path = GOLDEN / f"{name}.safetensors"
        self.values = load_file(path)
        with safe_open(path, "pt") as file:
            shape = json.loads(file.metadata()["architecture"])
        mode = shape["student_encoder_attention"]
        config = EncoderConfig(
            d_in=shape["d_in"], width=shape["d_model"], depth=shape["enc_depth"],
            heads=shape["enc_heads"], attention=ATTENTION.get(mode, mode),
            block=shape["student_encoder_block_size"], positions=POSITIONS[shape["rope_mode"]],
            rope="tiled", project="always",
        )  # fmt: skip
        predictor = Predictor(config, shape["pred_depth"], shape["pred_heads"])
        self.model = Jepa(ProcedureEncoder(config), predictor)
        self._load("sd.student_enc.", self.model.student)
        self._load("teacher.", self.model.teacher)
        self._load("sd.predictor.", self.model.predictor)
        with torch.no_grad():
            self.model.predictor.mask_token.copy_(self.values["sd.mask_token"][0])
        self.valid = self.values["input.valid_mask"].bool()
        lengths = [[n for n in row if n] for row in self.values["input.segment_lengths"].tolist()]
        layout = layout_of_segments(lengths)
        target = self.values["input.target_mask"].bool()[self.valid]
        mask = mask_of(target, layout.take_lengths)
        self.batch = Batch(self.values["input.x"][self.valid], layout, mask)

    def _load(self, prefix, module):
        state = {k.removeprefix(prefix): v for k, v in self.values.items() if k.startswith(prefix)}
        missing, unexpected = module.load_state_dict(state, strict=False)
        assert not unexpected
        assert all(name == "mask_token" or name in BUFFERS for name in missing)

    def packed(self, key):
        return self.values[key][self.valid]


@pytest.fixture(params=CASES)
def case(request):
    return Case(request.param)


def close(found, expected, tolerance=1e-5):
    torch.testing.assert_close(found, expected, atol=tolerance, rtol=0)


def test_encoder_student_teacher_and_predictor(case):
    batch, model, mask = case.batch, case.model, case.batch.mask
    close(model.student(batch.features, batch.layout), case.packed("encoder.full_valid"))
    context = model.context(batch)
    close(context, case.packed("encoder.student_context_only")[mask.context])
    close(model.targets(batch, model.inputs(batch)), case.values["teacher_out.at_targets"])
    predicted = model.predictions(batch, context)
    close(predicted, case.packed("predictor.full")[mask.target])


def test_loss_gradients_step_and_ema(case):
    model, values = case.model, case.values
    loss = model.loss(case.batch)
    close(loss, values["loss"][0], 1e-6)
    loss.backward()
    parameters = {
        name.replace("student.", "student_enc.").replace("predictor.mask_", "mask_"): parameter
        for name, parameter in model.named_parameters()
    }
    for key, value in values.items():
        if key.startswith("grad."):
            found = parameters[key.removeprefix("grad.")].grad
            close(found.reshape(value.shape), value)
        if key.startswith("gradnorm."):
            close(parameters[key.removeprefix("gradnorm.")].grad.norm(), value.squeeze())
    total = torch.nn.utils.clip_grad_norm_(model.trained_parameters(), 1.0)
    close(total, values["grad_total_norm_before_clip"].squeeze())
    torch.optim.AdamW(model.trained_parameters(), lr=1e-3, weight_decay=0.04, fused=True).step()
    for key, value in values.items():
        if key.startswith("after_step."):
            found = parameters[key.removeprefix("after_step.")]
            close(found.reshape(value.shape), value)
    model.update_teacher(0.99)
    teacher = dict(model.teacher.named_parameters())
    for key, value in values.items():
        if key.startswith("after_ema."):
            close(teacher[key.removeprefix("after_ema.")], value)
