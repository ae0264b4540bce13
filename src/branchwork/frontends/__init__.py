"""Front ends: they read events and send input. The layers below know none of them."""
