<?php

namespace Example\Http;

const VERSION = "2.1";

/** Something that answers. */
interface Handler
{
    public function handle(string $path): string;
}

trait Logs
{
    protected array $lines = [];

    protected function log(string $line): void
    {
        $this->lines[] = $line;
    }
}

abstract class Base implements Handler
{
    use Logs;

    const LIMIT = 10;

    abstract protected function name(): string;
}

class Router extends Base
{
    private array $routes = [];
    public static int $made = 0;

    public function __construct(private string $prefix)
    {
        self::$made++;
    }

    public function add(string $path, callable $to): self
    {
        $this->routes[$path] = $to;
        return $this;
    }

    public function handle(string $path): string
    {
        $this->log("handle $path");
        return ($this->routes[$path] ?? fn () => "none")();
    }

    protected function name(): string
    {
        return 'router';
    }
}

function route(string $prefix): Router
{
    return new Router($prefix);
}
