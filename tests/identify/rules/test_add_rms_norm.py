"""An addition whose sum a norm takes."""

from rule_sources import found


def test_an_addition_before_a_norm():
    code = """
    class Norm(nn.Module):
        def __init__(self, dim):
            self.weight = nn.Parameter(torch.zeros(dim))

        def forward(self, x):
            return x * torch.rsqrt(x.pow(2).mean(-1, True) + 1e-6) * (1 + self.weight)

    class Child(Norm):
        pass

    class Layer(nn.Module):
        def __init__(self, dim):
            self.after = Child(dim)
            self.plain = nn.LayerNorm(dim)

        def forward(self, x, y):
            residual = x + y
            return residual + self.mlp(self.after(residual))

    class Other(Layer):
        def forward(self, x, y):
            return self.plain(x + y) + self.after(x)
    """
    told = found(code)
    assert told["Layer"] == {"npu_add_rms_norm": {"one_plus_weight"}}
    assert "Other" not in told
