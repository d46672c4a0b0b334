"""Sources that attack while they are compiled. Each is bounded by itself."""

from tests.attacks.harness import SECRET, Attack

PROGRAMS = (
    Attack(
        id="O11", language="c", status=("compile_failed",), timeout=30, never_says=("root:", "COMPILED"),
        code='#include "/etc/shadow"\n#include "@SENTINELS@/secret.txt"\n#include "/proc/self/environ"\n'
             '__asm__(".incbin \\"@SENTINELS@/secret.txt\\"");\nint main(){puts("COMP" "ILED");}',
    ),
    Attack(
        id="O12", language="c", status=("timeout", "memory_exceeded"), timeout=2, never_says=("COMPILED",),
        code="".join(f"#define M{i} M{i + 1} M{i + 1}\n" for i in range(40))
             + '#define M40 1+\nint main(){puts("COMP" "ILED"); return M0 0;}',
    ),
    Attack(
        id="Y14-secrets-while-assembling", language="c", status=("compile_failed",), never_says=(SECRET,), timeout=30,
        code="__asm__(\".incbin \\\"@SENTINELS@/secret.txt\\\"\");\n#include \"@SENTINELS@/secret.txt\"\n#embed \"@SENTINELS@/secret.txt\"\nint main(){return 0;}",
    ),
    Attack(
        id="Y15-includes-without-end", language="cpp", status=("compile_failed", "timeout", "memory_exceeded", "failed"), timeout=10,
        code="#include \"/dev/zero\"\n#include \"/dev/stdin\"\n#include __FILE__\nint main(){}",
    ),
    Attack(
        id="Y19-secrets-by-macros", language="rust", status=("compile_failed",), never_says=(SECRET,), timeout=60,
        code="const A: &str = include_str!(\"@SENTINELS@/secret.txt\");\nconst B: &[u8] = include_bytes!(\"/proc/self/environ\");\n#[path = \"@SENTINELS@/secret.txt\"] mod m;\nfn main(){println!(\"{} {:?} {:?}\", A, B, option_env!(\"SBX_SENTINEL\"));}",
    ),
    Attack(
        id="Y35-zig-reads-while-it-compiles", language="zig", status=("compile_failed",), never_says=(SECRET,), timeout=120, memory_mb=1024,
        code="const std = @import(\"std\");\nconst secret = @embedFile(\"@SENTINELS@/secret.txt\");\npub fn main() void { comptime var i: u64 = 0; comptime while (i < 1 << 40) : (i += 1) {}; std.debug.print(\"{s}\", .{secret}); }",
    ),
)  # fmt: skip
