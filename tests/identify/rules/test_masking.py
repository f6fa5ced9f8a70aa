"""Masked softmax, masked assignment and selection."""

from rule_sources import found


def test_a_selection_ends_what_was_masked():
    code = """
    def route(scores, mask):
        chosen = scores.masked_fill(~mask, -1e9).topk(2).values
        return F.softmax(chosen, -1)
    """
    assert found(code) == {}


def test_masks_and_choices():
    code = """
    def softened(scores, mask):
        return torch.where(mask, scores, -1e4).softmax(-1)

    def cleared(x, mask, index):
        x[~mask] = 0
        return x

    def placed(x, index):
        x[index] = 0
        x[:, 1:] = 2
        return torch.where(x)

    def filled(x, mask):
        x[mask] = x[mask] * 2
        return x

    def train(model):
        return torch.optim.AdamW(model.parameters())
    """
    assert found(code) == {
        "softened": {"npu_scaled_masked_softmax": {"mask_bool_keep"}, "affinity_where": set()},
        "cleared": {"affinity_index_put": set()},
        "train": {"NpuFusedAdamW": set()},
    }
