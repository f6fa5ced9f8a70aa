"""GELU called, built, named or written out."""

from rule_sources import found


def test_gelus():
    code = """
    class A(nn.Module):
        def __init__(self):
            self.act = nn.GELU()

    class B(nn.Module):
        def __init__(self, config):
            self.act = ACT2FN[config.hidden_act]

    def quick(x):
        return x * torch.sigmoid(1.702 * x)

    def written(x):
        return 0.5 * x * (1.0 + torch.tanh(0.79 * (x + 0.044715 * torch.pow(x, 3.0))))

    def other(x):
        return 0.5 * x * (1.0 + torch.cos(x))
    """
    assert {symbol: set(ops) for symbol, ops in found(code).items()} == {
        "A": {"npu_gelu"}, "quick": {"npu_gelu"}, "written": {"npu_gelu"},
    }  # fmt: skip
