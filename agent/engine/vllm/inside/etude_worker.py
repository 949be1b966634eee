"""Runs inside vLLM's worker (0.32): exact log-probs, versions and experts of each position, new weights.

Only vLLM's own environment can import it; everything it is sent and sends is JSON over `/collective_rpc`.
"""

import base64
import contextlib
from pathlib import Path
from typing import Any

import numpy as np
import torch

KEPT = 4096
"""Records of requests that nobody asked for; the oldest are forgotten."""


class Record:
    """What is known of one request, by position: the version that consumed it and its experts."""

    def __init__(self) -> None:
        self.versions: list[int] = []
        self.routes: list[np.ndarray | None] = []

    def note(self, start: int, version: int, rows: np.ndarray | None, count: int) -> None:
        lacking = start + count - len(self.versions)
        self.versions += [-1] * lacking
        self.routes += [None] * lacking
        for index in range(count):
            self.versions[start + index] = version
            self.routes[start + index] = None if rows is None else rows[index]


class EtudeWorker:
    """Mixed into vLLM's worker class, hence the prefix."""

    model_runner: Any
    vllm_config: Any

    def etude_begin(self, version: str) -> dict[str, Any]:
        """Hook in; says what there is. Called once, before the first request."""
        self._etude_version = int(version)
        self._etude_records: dict[str, Record] = {}
        self._etude_exact_logprobs()
        buffer = self._etude_capture()
        self._etude_watch(buffer)
        return {"routes": buffer is not None}

    def etude_load(self, folder: str, version: str) -> dict[str, Any]:
        """Replace the weights; nothing runs meanwhile."""
        from safetensors import safe_open

        def tensors() -> Any:
            for path in sorted(Path(folder).glob("*.safetensors")):
                with safe_open(path, "pt") as file:
                    for name in file.keys():  # noqa: SIM118 - not a mapping
                        yield name, file.get_tensor(name)

        self.model_runner.reload_weights(weights_iterator=tensors())
        _repack_for_cpu(self.model_runner.get_model())
        self._etude_version = int(version)
        return {"version": self._etude_version}

    def etude_take(self, request: str) -> dict[str, Any]:
        """The record of a request, once."""
        name = next((name for name in self._etude_records if request in name), None)
        if name is None:
            return {"versions": [], "routes": None}
        record = self._etude_records.pop(name)
        shape = next((rows.shape for rows in record.routes if rows is not None), None)
        if shape is None:
            return {"versions": record.versions, "routes": None}
        empty = np.full(shape, -1, np.int16)
        rows = np.stack([empty if one is None else one for one in record.routes]).astype("<i2")
        return {
            "versions": record.versions,
            "routes": base64.b64encode(rows.tobytes()).decode(),
            "shape": list(rows.shape),
        }

    def _etude_exact_logprobs(self) -> None:
        """Raw log-probs are taken before top-p and masks, which is wanted, and at temperature 1, which is
        not: divide by each row's temperature first."""
        sampler = self.model_runner.sampler
        forward, compute = sampler.forward, sampler.compute_logprobs
        current: list[Any] = []

        def scaled(logits: torch.Tensor) -> torch.Tensor:
            temperature = current[-1].temperature if current else None
            if temperature is not None and temperature.shape[0] == logits.shape[0]:
                greedy = temperature < 1e-5
                logits = logits.float() / torch.where(greedy, 1.0, temperature)[:, None]
            return compute(logits.float())

        def watched(logits: torch.Tensor, sampling_metadata: Any, *args: Any, **more: Any) -> Any:
            current.append(sampling_metadata)
            try:
                return forward(logits, sampling_metadata, *args, **more)
            finally:
                current.pop()

        sampler.forward, sampler.compute_logprobs = watched, scaled

    def _etude_capture(self) -> torch.Tensor | None:
        config = self.vllm_config.model_config.hf_text_config
        if not (getattr(config, "num_experts", None) or getattr(config, "num_local_experts", None)):
            return None
        with contextlib.suppress(ImportError):
            from vllm.model_executor.layers.fused_moe.routed_experts_capturer import (  # pyright: ignore[reportMissingImports]
                RoutedExpertsCapturer,
                bind_routed_experts_capturer,
            )

            most = self.vllm_config.scheduler_config.max_num_batched_tokens
            capturer = RoutedExpertsCapturer(max_num_batched_tokens=most, vllm_config=self.vllm_config)
            bind_routed_experts_capturer(self.model_runner.get_model(), capturer)
            return capturer.device_buffer
        return None

    def _etude_watch(self, buffer: torch.Tensor | None) -> None:
        runner, records = self.model_runner, self._etude_records
        execute = runner.execute_model

        def watched(plan: Any, *args: Any, **more: Any) -> Any:
            out = execute(plan, *args, **more)
            if not plan.total_num_scheduled_tokens:
                return out
            starts = {new.req_id: new.num_computed_tokens for new in plan.scheduled_new_reqs}
            old = plan.scheduled_cached_reqs
            starts |= dict(zip(old.req_ids, old.num_computed_tokens, strict=True))
            offset = 0
            for name in runner.input_batch.req_ids:
                count = plan.num_scheduled_tokens.get(name, 0)
                if count:
                    rows = None
                    if buffer is not None:
                        rows = buffer[offset : offset + count].to(torch.int16).cpu().numpy().copy()
                    record = records.setdefault(name, Record())
                    record.note(starts[name], self._etude_version, rows, count)
                    offset += count
            while len(records) > KEPT:
                records.pop(next(iter(records)))
            return out

        runner.execute_model = watched


def _repack_for_cpu(model: torch.nn.Module) -> None:
    """On CPU two things keep what was derived from the old weights: packed experts, and the handle of an
    output layer that shares the embedding."""
    from vllm.platforms import current_platform  # pyright: ignore[reportMissingImports]

    if not current_platform.is_cpu():
        return
    for module in model.modules():
        method = getattr(module, "quant_method", None)
        kernel = getattr(method, "moe_kernel", None)
        if kernel is not None and hasattr(module, "w13_weight"):
            kernel.fused_experts.process_weights_after_loading(module)
        elif method is not None and hasattr(module, "cpu_linear") and hasattr(module, "num_embeddings"):
            method.process_weights_after_loading(module)
