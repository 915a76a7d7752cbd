import 'reflect-metadata';
import { Controller, Get, Module } from '@nestjs/common';
import { APP_GUARD, NestFactory } from '@nestjs/core';
import { ThrottlerGuard, ThrottlerModule } from '@nestjs/throttler';
import { Redis } from 'ioredis';
import { Limiter } from 'redis-throttle-client';
import { RedisThrottleStorage } from 'redis-throttle-client/nestjs';

const limiter = new Limiter(new Redis('redis://127.0.0.1:7777'));

@Controller()
class AppController {
  @Get()
  hello() {
    return 'hello';
  }
}

@Module({
  imports: [
    ThrottlerModule.forRoot({
      throttlers: [{ limit: 10, ttl: 60_000 }],
      storage: new RedisThrottleStorage({ limiter }),
    }),
  ],
  controllers: [AppController],
  providers: [{ provide: APP_GUARD, useClass: ThrottlerGuard }],
})
class AppModule {}

const app = await NestFactory.create(AppModule);
await app.listen(8080);
