"""Triton: one kernel, over PyTorch's memory."""

import stages
import torch
import triton
import triton.language as tl


@triton.jit
def add(a, b, total, count, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = at < count
    tl.store(total + at, tl.load(a + at, mask=mask) + tl.load(b + at, mask=mask), mask=mask)


def kernel():
    count = 100_003
    a, b = torch.arange(count).float().cuda(), torch.ones(count).cuda()
    total = torch.empty_like(a)
    add[(triton.cdiv(count, 256),)](a, b, total, count, BLOCK=256)
    wrong = int((total.cpu() != torch.arange(count).float() + 1).sum())
    return f"{wrong} wrong"


stages.run({"kernel": kernel})
