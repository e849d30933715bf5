"""PyTorch: single operations, and training loops of small networks with fixed seeds."""

import time

import stages
import torch
import torch.nn.functional as F


def seeded(*shape):
    generator = torch.Generator().manual_seed(sum(shape))
    return torch.randn(*shape, generator=generator)


def devices():
    return (
        f"{torch.__version__}, {torch.cuda.device_count()}, {torch.cuda.get_device_name(0)}, "
        f"{torch.cuda.get_device_capability(0)}"
    )


def tensor():
    return torch.zeros(1000, device="cuda").cpu().sum().item()


def elementwise():
    a, b = seeded(1000, 1000), seeded(1000, 1001)[:, :1000]
    got = (torch.sin(a.cuda()) * b.cuda() + 1).cpu()
    return f"off by {(got - (torch.sin(a) * b + 1)).abs().max().item():.1e}"


def reductions():
    a = seeded(1000, 999).cuda()
    return f"{a.sum().item():.2f} {a.max().item():.4f} {a.argmax().item()} {a.softmax(1).std():.6f}"


def sort():
    values, _ = seeded(100_000).cuda().sort()
    return f"{values[0].item():.4f} {values[-1].item():.4f}"


def random():
    torch.manual_seed(5)
    return f"{torch.randn(10000, device='cuda').mean().item():.6f}"


def matmul():
    a, b = seeded(512, 300), seeded(300, 400)
    got = (a.cuda() @ b.cuda()).cpu()
    return f"off by {((got - a @ b).norm() / (a @ b).norm()).item():.0e}"


def matmul_bf16():
    a, b = seeded(512, 512).bfloat16(), seeded(512, 512).bfloat16()
    want = a.float() @ b.float()
    got = (a.cuda() @ b.cuda()).float().cpu()
    return f"off by {((got - want).norm() / want.norm()).item():.0e}"


def matmul_half():
    a, b = seeded(256, 128).half(), seeded(128, 320).half()
    want = a.float() @ b.float()
    got = (a.cuda() @ b.cuda()).float().cpu()
    return f"off by {((got - want).norm() / want.norm()).item():.0e}"


def products_of_batches():
    """Products of batches, with vectors, in double precision, and of complex numbers."""
    pairs = (
        (seeded(6, 40, 30), seeded(6, 30, 50)),
        (seeded(40, 30), seeded(30)),
        (seeded(40, 30).double(), seeded(30, 7).double()),
        (torch.complex(seeded(8, 9), seeded(8, 9)), torch.complex(seeded(9, 4), seeded(9, 4))),
    )
    off = [((a.cuda() @ b.cuda()).cpu() - a @ b).norm() / (a @ b).norm() for a, b in pairs]
    return "off by " + " ".join(f"{it.item():.0e}" for it in off)


def linear():
    """A layer with a bias, forward and backward, in three types. NVIDIA's library adds the bias
    within the product, and ours before it, so the last digits may differ."""
    wrong = []
    bounds = {torch.float32: 1e-5, torch.bfloat16: 2e-2, torch.float16: 3e-3}
    for kind, bound in bounds.items():
        layer, x = torch.nn.Linear(96, 64), seeded(128, 96)
        with torch.no_grad():
            layer.weight.copy_(seeded(64, 96))
            layer.bias.copy_(seeded(64))
        ours = torch.nn.Linear(96, 64).to("cuda", kind)
        ours.load_state_dict(layer.state_dict())
        given = x.to("cuda", kind).requires_grad_()
        ours(given).square().mean().backward()
        x.requires_grad_()
        layer(x).square().mean().backward()
        for got, want in (
            (given.grad, x.grad),
            (ours.weight.grad, layer.weight.grad),
            (ours.bias.grad, layer.bias.grad),
        ):
            off = ((got.float().cpu() - want).norm() / want.norm()).item()
            wrong += [f"{kind} {off:.0e}"] if not off < bound else []
    return "wrong by " + ", ".join(wrong) if wrong else "right"


def product_time(kind, n=4096, times=20):
    """Times square products that follow each other without a wait."""
    a, b = (seeded(n, n + i)[:, :n].contiguous().to("cuda", kind) for i in (0, 1))
    for _ in range(3):
        a @ b
    torch.cuda.synchronize()
    began = time.perf_counter()
    for _ in range(times):
        a @ b
    torch.cuda.synchronize()
    return f"{2 * n**3 * times / (time.perf_counter() - began) / 1e12:.1f} TFLOP/s"


def matmul_time():
    return product_time(torch.float32)


def matmul_bf16_time():
    return product_time(torch.bfloat16)


def solve():
    a = seeded(64, 64) + 8 * torch.eye(64)
    got = torch.linalg.solve(a.cuda(), torch.ones(64, device="cuda")).cpu()
    return f"off by {(a @ got - 1).abs().max().item():.0e}"


def fft():
    a = seeded(4096)
    return f"off by {(torch.fft.fft(a.cuda()).cpu() - torch.fft.fft(a)).abs().max().item():.0e}"


def convolution():
    a, w = seeded(4, 8, 32, 32), seeded(16, 8, 3, 3)
    want = F.conv2d(a, w, padding=1)
    got = F.conv2d(a.cuda(), w.cuda(), padding=1).cpu()
    return f"off by {((got - want).norm() / want.norm()).item():.0e}"


def trained(model, data, labels, steps):
    """Returns the losses at the beginning and at the end."""
    model, data, labels = model.cuda(), data.cuda(), labels.cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(data), labels)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return f"{losses[0]:.5f} {losses[-1]:.5f}"


def training():
    torch.manual_seed(1)
    model = torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.ReLU(), torch.nn.Linear(128, 10))
    return trained(model, seeded(256, 64), torch.arange(256) % 10, 30)


def elementwise_training():
    """A training loop without a product of matrices: no library is needed."""
    torch.manual_seed(1)
    x, w = seeded(4096).cuda(), torch.zeros(1, device="cuda", requires_grad=True)
    optimizer = torch.optim.Adam([w], lr=0.1)
    for _ in range(30):
        optimizer.zero_grad()
        loss = ((w * x - 3 * x) ** 2).mean()
        loss.backward()
        optimizer.step()
    return f"{loss.item():.6f}"


def training_convolution():
    torch.manual_seed(1)
    model = torch.nn.Sequential(
        torch.nn.Conv2d(3, 8, 3),
        torch.nn.ReLU(),
        torch.nn.AdaptiveAvgPool2d(4),
        torch.nn.Flatten(),
        torch.nn.Linear(128, 10),
    )
    return trained(model, seeded(64, 3, 32, 32), torch.arange(64) % 10, 20)


def step_time():
    """The median time of a step of the small network, in microseconds."""
    torch.manual_seed(1)
    model = torch.nn.Sequential(
        torch.nn.Linear(512, 512), torch.nn.ReLU(), torch.nn.Linear(512, 10)
    ).cuda()
    data, labels = seeded(256, 512).cuda(), (torch.arange(256) % 10).cuda()
    optimizer, times = torch.optim.SGD(model.parameters(), lr=0.05), []
    for _ in range(60):
        began = time.perf_counter()
        optimizer.zero_grad()
        F.cross_entropy(model(data), labels).backward()
        optimizer.step()
        torch.cuda.synchronize()
        times.append(time.perf_counter() - began)
    return f"{sorted(times)[30] * 1e6:.0f} us"


def elementwise_time():
    """The median time of twenty small operations, in microseconds."""
    a, times = torch.ones(1 << 16, device="cuda"), []
    for _ in range(60):
        began = time.perf_counter()
        for _ in range(20):
            a = a * 1.0001
        torch.cuda.synchronize()
        times.append(time.perf_counter() - began)
    return f"{sorted(times)[30] * 1e6:.0f} us"


def graph():
    a, graph = torch.ones(1000, device="cuda"), torch.cuda.CUDAGraph()
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        a.mul_(1)
    torch.cuda.synchronize()
    with torch.cuda.graph(graph):
        a.mul_(2)
    graph.replay()
    graph.replay()
    return a.sum().item()


ALL = (
    devices,
    tensor,
    elementwise,
    reductions,
    sort,
    random,
    elementwise_training,
    elementwise_time,
    graph,
    matmul,
    matmul_bf16,
    matmul_half,
    products_of_batches,
    linear,
    matmul_time,
    matmul_bf16_time,
    training,
    step_time,
    solve,
    fft,
    convolution,
    training_convolution,
)
stages.run({stage.__name__: stage for stage in ALL})
