"""Mangled names become what the programmer wrote; what is not mangled is left alone."""

import pytest

from exhume.collect.symbols.parser.demangle import demangle


@pytest.mark.parametrize(
    ("mangled", "readable"),
    [
        ("_ZNSt6vectorIiSaIiEE9push_backERKi", "std::vector<int, std::allocator<int> >::push_back(int const&)"),
        ("_Z3foov", "foo()"),
        ("_Z3foov.cold", "foo() [clone .cold]"),
        ("_Znwm", "operator new(unsigned long)"),
    ],
)
def test_cplusplus(mangled: str, readable: str) -> None:
    assert demangle(mangled) == readable


@pytest.mark.parametrize(
    ("mangled", "readable"),
    [
        ("_ZN4core3fmt9Formatter3pad17h9b2b3a0e5b4d1b31E", "core::fmt::Formatter::pad"),
        (
            "_ZN71_$LT$Test$u20$$u2b$$u20$$u27$static$u20$as$u20$foo..Bar$LT$Test$GT$$GT$3bar17h05af221e174051e9E",
            "<Test + 'static as foo::Bar<Test>>::bar",
        ),
        ("_ZN8$RF$test3foo17h05af221e174051e9E", "&test::foo"),
        ("_ZN8$RF$testfoo17h05af221e174051e9E", "_ZN8$RF$testfoo17h05af221e174051e9E"),  # lengths don't add up
        ("_ZN12test$BP$test4foob17h05af221e174051e9E", "test*test::foob"),
        ("_ZN3foo17h05af221e174051e9E.llvm.A5310EB9", "foo"),
        (
            "_ZN28_$u7b$$u7b$closure$u7d$$u7d$17h05af221e174051e9E",
            "{{closure}}",
        ),
    ],
)
def test_rust_legacy(mangled: str, readable: str) -> None:
    assert demangle(mangled) == readable


@pytest.mark.parametrize(
    ("mangled", "readable"),
    [
        ("_RNvC6_123foo3bar", "123foo::bar"),
        ("_RNvCs1234_7mycrate7example", "mycrate::example"),
        ("_RNqCs4fqI2P2rA04_11utf8_identsu30____7hkackfecea1cbdathfdh9hlq6y", "utf8_idents::საჭმელად_გემრიელი_სადილი"),
        ("_RNCNCNgCs6DXkGYLi8lr_2cc5spawn00B5_", "cc::spawn::{closure#0}::{closure#0}"),
        (
            "_RNCINkXs25_NgCsbmNqQUJIY6D_4core5sliceINyB9_4IterhENuNgNoBb_4iter8iterator8Iterator9rposition"
            "NCNgNpB9_6memchr7memrchrs_0E0Bb_",
            "<core::slice::Iter<u8> as core::iter::iterator::Iterator>::rposition::<core::slice::memchr::memrchr::"
            "{closure#1}>::{closure#0}",
        ),
        (
            "_RINbNbCskIICzLVDPPb_5alloc5alloc8box_freeDINbNiB4_5boxed5FnBoxuEp6OutputuEL_ECs1iopQbuBiw2_3std",
            "alloc::alloc::box_free::<dyn alloc::boxed::FnBox<(), Output = ()>>",
        ),
        ("_RMC0INtC8arrayvec8ArrayVechKj7b_E", "<arrayvec::ArrayVec<u8, 123>>"),
        ("_RMCs4fqI2P2rA04_13const_genericINtB0_8UnsignedKhb_E", "<const_generic::Unsigned<11>>"),
        ("_RMCs4fqI2P2rA04_13const_genericINtB0_6SignedKs98_E", "<const_generic::Signed<152>>"),
        ("_RMCs4fqI2P2rA04_13const_genericINtB0_6SignedKanb_E", "<const_generic::Signed<-11>>"),
        ("_RMCs4fqI2P2rA04_13const_genericINtB0_4BoolKb0_E", "<const_generic::Bool<false>>"),
        ("_RMCs4fqI2P2rA04_13const_genericINtB0_4CharKc76_E", "<const_generic::Char<'v'>>"),
        ("_RMCs4fqI2P2rA04_13const_genericINtB0_3FooKpE", "<const_generic::Foo<_>>"),
        ("_RNvMs_C1aINtB4_1SFUKCRmEuE1f", '<a::S<unsafe extern "C" fn(&u32)>>::f'),
        ("_RNvMC1aINtB2_1STmtEE1f", "<a::S<(u32, u16)>>::f"),
        ("_RNvMC1aINtB2_1STmEE1f", "<a::S<(u32,)>>::f"),
        ("_RNvMC1aINtB2_1SAmj4_E1f", "<a::S<[u32; 4]>>::f"),
        ("_RNvMC1aINtB2_1SOeE1f", "<a::S<*mut str>>::f"),
        ("_RNvYmNtC4core5Clone5clone", "<u32 as core::Clone>::clone"),
        ("_RNSC1as_4call", "a::{shim:call#1}"),
        ("_RNvC1a4main.llvm.123456", "a::main"),
        ("_RINvC1a1fFG_RL0_eEB2_E", "a::f::<for<'a> fn(&'a str) -> a>"),
    ],
)
def test_rust_v0(mangled: str, readable: str) -> None:
    assert demangle(mangled) == readable


@pytest.mark.parametrize(
    "name", ["main", "_start", "_Z", "_ZN", "_R", "_RNv", "_RNvC6_123foo", "_RZZZ", "_ZNnonsense", ""]
)
def test_what_can_not_be_read_is_left_alone(name: str) -> None:
    assert demangle(name) == name


def test_the_version_of_a_symbol_is_no_part_of_its_name() -> None:
    assert demangle("memcpy@@GLIBC_2.14") == "memcpy"


def references(levels: int) -> str:
    """A C++ name whose readable form doubles with every level."""
    name = "_Z1f4pairIiiE"
    for level in range(levels):
        digits = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ"[level]
        name += f"S_IS{digits}_S{digits}_E"
    return name


def test_hostile_cplusplus_names_are_refused_rather_than_expanded() -> None:
    assert demangle(references(2)).startswith("f(pair<int, int>, pair<pair<int, int>, pair<int, int> >")
    for levels in (10, 30):
        assert demangle(references(levels)) == references(levels)
    long_name = "_Z" + "3foo" * 5000
    assert demangle(long_name) == long_name


def test_hostile_rust_names_are_refused_rather_than_expanded() -> None:
    doubling = "_RINvC1a1fTmmE" + "".join(f"TB{digit}_B{digit}_E" for digit in "89") + "E"
    assert demangle(doubling).startswith("a::f::<(u32, u32), ")
    name, at = "_RINvC1a1fTmmE", 7
    for _ in range(20):
        here = len(name) - 2
        digits = f"{_base62(at)}_"
        name += f"TB{digits}B{digits}E"
        at = here
    assert demangle(name + "E") == name + "E"
    deep = "_RINvC1a1f" + "R" * 900 + "mE"
    assert demangle(deep) == deep


def _base62(position: int) -> str:
    alphabet = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
    value, digits = position - 1, ""
    while True:
        digits = alphabet[value % 62] + digits
        value //= 62
        if not value:
            return digits
