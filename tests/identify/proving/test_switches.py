"""Which conditions a rewritten text asks, and what has to be called so that it runs."""

from __future__ import annotations

from types import ModuleType, SimpleNamespace

from fusionkit.identify.proving.switches import Switches, rewritten_symbol

OLD = """
class Norm:
    def scale(self, x):
        return x + 1

    def forward(self, x):
        return self.scale(x)
"""


def test_the_class_is_called_where_another_method_was_rewritten():
    inside = OLD.replace("return x + 1", "return x + 2")
    caller = OLD.replace("return self.scale(x)", "return x + 1")
    assert rewritten_symbol("Norm.scale", OLD, inside) == "Norm.scale"
    assert rewritten_symbol("Norm.scale", OLD, caller) == "Norm"
    assert rewritten_symbol("Norm", OLD, caller) == "Norm"
    assert rewritten_symbol("Norm.scale", OLD, OLD) == "Norm.scale"


def test_only_switches_of_new_conditions_are_turned_on():
    old = "if USE_FUSED_OLD:\n    pass\n"
    new = old + "if USE_NPU and len([]) and self.config.use_fused_norm and is_npu_available():\n    pass\n"
    switches = Switches(new, old)
    module = ModuleType("rewritten")
    module.USE_FUSED_OLD, module.USE_NPU, module.is_npu_available = False, False, lambda: False
    config = SimpleNamespace(use_fused_norm=False, use_cache=False)
    switches.turn_on_names(module)
    switches.turn_on_attributes(config, None)
    assert (module.USE_FUSED_OLD, module.USE_NPU, module.is_npu_available()) == (False, True, True)
    assert (config.use_fused_norm, config.use_cache) == (True, False)
    assert switches.asked == 1
