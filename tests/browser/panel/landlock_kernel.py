"""The kernel of ``loopback_kernel`` behind Landlock; started by a kernelspec of a test."""

from tests.browser.loopback_kernel import serve

if __name__ == "__main__":
    serve("landlock")
