"""The keys of allocator configuration that libraries register in torch: read, and registered before torch_npu does it.

torch keeps them in a std::unordered_set<std::string> (libstdc++'s layout, bits/hashtable.h).
"""

from __future__ import annotations

import ctypes
import subprocess
from pathlib import Path

from fusionkit.npu.dry.behaviours import CONFIGURATION_KEYS
from fusionkit.npu.dry.standin import compiler

# What a CUDA build of torch does when it is loaded: the keys are in torch's own set before torch_npu comes.
REGISTERING = r"""
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
struct text { char *data; size_t size; char local[16]; };
struct node { struct node *next; struct text key; size_t hash; };
struct set { struct node **buckets; size_t bucket_count; struct node *first; size_t elements; };
typedef size_t (*hashing)(const void *, size_t, size_t);
void register_key(struct set *keys, hashing hash, const char *key) {
    struct node *made = calloc(1, sizeof *made);
    made->key.data = strdup(key);
    made->key.size = strlen(key);
    made->hash = hash(key, made->key.size, 0xc70f6907UL);
    size_t bucket = made->hash % keys->bucket_count;
    if (keys->buckets[bucket]) {
        made->next = keys->buckets[bucket]->next;
        keys->buckets[bucket]->next = made;
    } else {
        made->next = keys->first;
        keys->first = made;
        if (made->next) keys->buckets[made->next->hash % keys->bucket_count] = made;
        keys->buckets[bucket] = (struct node *)&keys->first;
    }
    keys->elements++;
}
"""

# Every Python process that finds this on its path registers them.
SITE = """
import ctypes, os
import torch
libc10 = ctypes.CDLL(os.path.join(os.path.dirname(torch.__file__), "lib", "libc10.so"))
own = getattr(libc10, {symbol!r})
own.restype = ctypes.c_void_p
hashing = ctypes.CDLL("libstdc++.so.6")._ZSt11_Hash_bytesPKvmm
library = ctypes.CDLL({library!r})
library.register_key.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_char_p]
for key in {keys!r}:
    library.register_key(own(), ctypes.cast(hashing, ctypes.c_void_p), key.encode())
"""


class _Node(ctypes.Structure):
    pass


_Node._fields_ = [
    ("next", ctypes.POINTER(_Node)),
    ("data", ctypes.c_void_p),
    ("size", ctypes.c_size_t),
]


class _Set(ctypes.Structure):
    _fields_ = (
        ("buckets", ctypes.c_void_p),
        ("bucket_count", ctypes.c_size_t),
        ("first", ctypes.POINTER(_Node)),
        ("elements", ctypes.c_size_t),
    )


def registered_keys(library: Path) -> list[str]:
    """The keys in the set that `library` answers with, in this process."""
    answering = getattr(ctypes.CDLL(str(library)), CONFIGURATION_KEYS)
    answering.restype = ctypes.POINTER(_Set)
    keys, node = [], answering().contents.first
    while node:
        keys.append(ctypes.string_at(node.contents.data, node.contents.size).decode())
        node = node.contents.next
    return keys


def write_registering_site(folder: Path, keys: list[str]) -> None:
    """A sitecustomize.py in `folder`, and the library that it loads."""
    source, library = folder / "keys.c", folder / "keys.so"
    source.write_text(REGISTERING)
    subprocess.run([*compiler(), "-shared", "-fPIC", "-o", str(library), str(source)], check=True)
    text = SITE.format(symbol=CONFIGURATION_KEYS, library=str(library), keys=keys)
    (folder / "sitecustomize.py").write_text(text)
