"""Whether a client or a server keeps the promises of this API about events.

``checker``    what must hold of the events that somebody saw, and of the cursors they asked with
``proxy``      a loopback proxy that breaks connections in the ways in which networks do
``scenarios``  what a server is asked to prove, on its own and over its restarts
``socket``     a WebSocket that reports all it is told, close codes included

It talks to servers over their public interface only, and knows nothing of this one.
"""
